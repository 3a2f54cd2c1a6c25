from service.dispatch.dispatcher import Ledger


def test_a_batch_is_given_back_once():
    ledger = Ledger()
    number = ledger.hand_over("engine", ["a", "b"])

    assert ledger.take_back("engine", number) == ["a", "b"]
    assert ledger.take_back("engine", number) == []


def test_a_lost_engine_gives_back_all_it_held_and_others_keep_theirs():
    ledger = Ledger()
    ledger.hand_over("lost", ["a"])
    ledger.hand_over("lost", ["b", "c"])
    kept = ledger.hand_over("sound", ["d"])

    assert ledger.lose("lost") == [["a"], ["b", "c"]]
    assert ledger.lose("lost") == []
    assert ledger.take_back("sound", kept) == ["d"]


def test_a_late_answer_of_a_lost_engine_finds_nothing():
    ledger = Ledger()
    number = ledger.hand_over("lost", ["a"])
    ledger.lose("lost")

    assert ledger.take_back("lost", number) == []
