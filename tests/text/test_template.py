import sys

import pytest

from edgespec.errors import ModelError, UsageError
from edgespec.text.template import ChatTemplate

USER = [{"role": "user", "content": "hi"}]


def test_renders_messages_and_tokens() -> None:
    source = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    source += "{% if add_generation_prompt %}>{% endif %}"
    assert ChatTemplate(source, bos="<s>").render(USER) == "<s>[user]hi>"
    assert ChatTemplate(None).render(USER) == "user: hi\nassistant:"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% for c in [].__class__.__base__.__subclasses__() %}{{ c }}{% endfor %}",
        "{{ messages.append(1) }}",
        "{{ 'a' * 1000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{{ messages[0].content.upper() * 1 }}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ raise_exception('roles must alternate') }}",
        "{{ 1 / 0 }}",
        "{{ undefined.attribute }}",
        "{% include '/etc/passwd' %}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 'x'.center(1000000000) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ 'x' | center(1000000000) }}",
    ],
)
def test_hostile_and_broken_templates_are_errors_in_bounded_time(source: str) -> None:
    before = sys.gettrace()
    with pytest.raises(ModelError):
        ChatTemplate(source).render(USER)
    assert sys.gettrace() is before


def test_a_template_that_does_not_parse_is_refused_at_load() -> None:
    with pytest.raises(ModelError, match="broken"):
        ChatTemplate("{% if %}")


@pytest.mark.parametrize("message", [{}, {"role": "root", "content": "x"}, {"role": "user", "content": 3}])
def test_bad_messages_are_usage_errors(message: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="role"):
        ChatTemplate(None).render([message])
