"""No test is skipped in silence: the hooks of tests/conftest.py turn a skip into a failure."""

import pytest

from tests.project.code import ROOT


@pytest.fixture
def strict(pytester: pytest.Pytester) -> pytest.Pytester:
    conftest = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    pytester.makeconftest(conftest.replace('["pytester"]', "[]"))
    return pytester


@pytest.mark.parametrize(
    "body",
    [
        "def test_it():\n    pytest.skip('no time')",
        "@pytest.mark.skip(reason='no time')\ndef test_it(): ...",
        "@pytest.mark.skipif(True, reason='no time')\ndef test_it(): ...",
        "def test_it():\n    pytest.xfail('no time')",
        "@pytest.mark.xfail(reason='no time')\ndef test_it():\n    assert False",
        "@pytest.mark.xfail(reason='no time')\ndef test_it(): ...",
        "@pytest.fixture\ndef it():\n    pytest.skip('no time')\ndef test_it(it): ...",
    ],
)
def test_a_test_that_does_not_count_fails_and_says_why(strict: pytest.Pytester, body: str) -> None:
    strict.makepyfile(f"import pytest\n{body}")

    result = strict.runpytest("-p", "no:cacheprovider")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines("*test_it was skipped or expected to fail: *no time*")


def test_a_module_that_skips_itself_fails(strict: pytest.Pytester) -> None:
    strict.makepyfile("import pytest\npytest.importorskip('no_such_module')\ndef test_it(): ...")

    result = strict.runpytest("-p", "no:cacheprovider")

    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1)


def test_tests_that_pass_and_fail_still_do(strict: pytest.Pytester) -> None:
    strict.makepyfile("def test_good(): ...\ndef test_bad():\n    assert False")

    strict.runpytest("-p", "no:cacheprovider").assert_outcomes(passed=1, failed=1)
