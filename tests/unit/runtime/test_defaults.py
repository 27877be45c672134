"""`defaults`: how a model is sampled where a request does not say."""

import msgspec
import pytest

from perdure.runtime.llamacpp.defaults import Recommended, default_sampling

from .test_exactness import BUNDLED

PUBLISHED = Recommended(0.2, 0.9)


@pytest.mark.parametrize(
    ("temp", "top_p", "published", "found"),
    [
        (None, None, Recommended(), (1.0, 1.0)),
        (None, None, PUBLISHED, (0.2, 0.9)),
        ("0.600000", "0.950000", PUBLISHED, (0.6, 0.95)),
        ("0.600000", None, PUBLISHED, (0.6, 0.9)),
        (None, "0.950000", PUBLISHED, (0.2, 0.95)),
        (None, "0.950000", Recommended(), (1.0, 0.95)),
        ("0.000000", "0.000000", PUBLISHED, (0.0, 0.0)),
        ("2", "1", PUBLISHED, (2.0, 1.0)),
        (None, None, Recommended(temperature=0.0), (0.0, 1.0)),
    ],
)
def test_the_file_goes_before_the_publisher_and_he_before_the_api(
    temp: str | None, top_p: str | None, published: Recommended, found: tuple[float, float]
) -> None:
    """Each number for itself; zero is a recommendation as well."""
    lines: list[str] = []
    facts = msgspec.structs.replace(BUNDLED, sampling_temp=temp, sampling_top_p=top_p)
    assert default_sampling(facts, published, lines.append) == found
    assert lines == []


@pytest.mark.parametrize("told", ["nan", "inf", "-inf", "-0.100000", "2.000001", "true", "warm", "", "9" * 4000])
def test_what_no_request_may_say_is_ignored_and_told(told: str) -> None:
    """The next source is asked. One line for each value, however long that is."""
    lines: list[str] = []
    facts = msgspec.structs.replace(BUNDLED, sampling_temp=told, sampling_top_p=told)
    assert default_sampling(facts, PUBLISHED, lines.append) == (0.2, 0.9)
    assert [line.split(" ")[0] for line in lines] == ["general.sampling.temp", "general.sampling.top_p"]
    assert all(repr(told[:40]) in line and len(line) < 200 for line in lines)
    assert ("from 0 to 2:" in lines[0], "from 0 to 1:" in lines[1]) == (True, True)


def test_minus_zero_is_zero() -> None:
    """One temperature has one spelling in what is stored."""
    facts = msgspec.structs.replace(BUNDLED, sampling_temp="-0.000000", sampling_top_p="-0.000000")
    assert str(default_sampling(facts, PUBLISHED, print)) == "(0.0, 0.0)"
