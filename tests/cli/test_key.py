from cli import main
from service.http.access import digest
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


def test_a_name_that_would_break_the_list_is_refused(capsys):
    assert main(["key", "a,b"]) == 2
    assert "no name for a key" in capsys.readouterr().err
