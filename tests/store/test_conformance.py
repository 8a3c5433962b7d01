"""The suite that any store must pass, on each of ours."""

from collections import Counter

from tests.support.store_suite import StoreSuite


class TestStore(StoreSuite): ...


def test_no_sentence_of_the_suite_hides_another() -> None:
    names = Counter(name for suite in StoreSuite.__bases__ for name in vars(suite))

    assert [name for name, times in names.items() if times > 1 and name.startswith("test_")] == []
