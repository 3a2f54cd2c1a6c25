import pytest

from cli import main
from service.keys import digest
from service.settings import Settings


def test_a_new_key_fits_its_entry(capsys):
    assert main(["key", "alice"]) == 0

    key, entry = capsys.readouterr().out.splitlines()
    assert entry == f"alice:{digest(key)}"
    assert Settings.read({"model": "m", "api_keys": entry}).api_keys == (entry,)


def test_no_two_keys_are_alike(capsys):
    main(["key", "a"])
    main(["key", "a"])

    assert len(set(capsys.readouterr().out.splitlines())) == 4


@pytest.mark.parametrize("name", ["a,b", "zoë", ""])
def test_a_name_that_the_service_does_not_accept_is_refused(capsys, name):
    assert main(["key", name]) == 2
    assert "no name for a key" in capsys.readouterr().err
