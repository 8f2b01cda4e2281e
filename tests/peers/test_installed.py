"""The peers are the real packages."""

from __future__ import annotations

import importlib

import pytest

from tests.peers.conftest import PACKAGES


@pytest.mark.parametrize("name", PACKAGES)
def test_a_peer_is_the_package_of_the_registry(name: str) -> None:
    assert "site-packages" in str(importlib.import_module(name).__file__)
