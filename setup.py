"""What pyproject.toml cannot say: the folder `models` is installed inside the package."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["edgespec*"]), "edgespec.models"], package_dir={"edgespec.models": "models"})
