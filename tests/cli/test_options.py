"""What the documents say of options holds for all of them."""

import pytest
from typer.main import get_command

from edgespec.cli.app import app


@pytest.mark.parametrize("name", ["run", "chat", "serve", "batch", "plan"])
def test_every_option_has_an_environment_twin(name: str) -> None:
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    options = [param for param in command.params if param.param_type_name == "option" and param.name != "help"]
    assert len(options) > 5
    for option in options:
        assert option.envvar == f"EDGESPEC_{option.opts[0].removeprefix('--').upper().replace('-', '_')}"
