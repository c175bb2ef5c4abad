import pytest

from toolsemble import ModelError, ToolConfigurationError
from toolsemble.models.adapter.key_masking import find_keys, mask_keys_in_errors

KEY = "s3cret-key"


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        (ModelError(f"No such key: {KEY}", retryable=True, retry_after=2.0), ModelError, "No such key: ***"),
        (ToolConfigurationError(f"Not {KEY}"), ToolConfigurationError, "Not ***"),
        (ValueError(f"Not {KEY}"), ModelError, "Not *** (ValueError)"),
    ],
)
def test_an_error_is_raised_without_the_key(raised, kind, said):
    with pytest.raises(kind) as caught, mask_keys_in_errors(lambda: [None, "", 5, KEY]):
        raise raised
    assert (type(caught.value), str(caught.value)) == (kind, said)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_an_error_without_the_key_still_says_whether_to_try_again():
    with pytest.raises(ModelError) as caught, mask_keys_in_errors(lambda: [KEY]):
        raise ModelError(f"Not {KEY}", retryable=True, retry_after=2.0)
    assert (caught.value.retryable, caught.value.retry_after) == (True, 2.0)


def test_what_an_error_was_made_of_is_left_out_only_when_it_shows_the_key():
    harmless, telling, noted = ValueError("too long"), ValueError(KEY), ValueError("see below")
    noted.add_note(f"sent: {KEY}")
    for cause, kept in ((harmless, harmless), (telling, None), (noted, None)):
        with pytest.raises(ModelError) as caught, mask_keys_in_errors(lambda: [KEY]):
            raise ModelError("It failed") from cause
        assert (str(caught.value), caught.value.__cause__) == ("It failed", kept)


def test_errors_that_refer_to_each_other_are_looked_at_once():
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one
    with pytest.raises(ModelError, match="It failed"), mask_keys_in_errors(lambda: [KEY]):
        raise ModelError("It failed") from one


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("k", "Incorrect API key provided: k. Check k", "Incorrect API key provided: ***. Check ***"),
        ("key", "Incorrect keys: 'key', monkeys", "Incorrect keys: '***', monkeys"),
        ("sk-1234", "No sk-1234, but sk-12345", "No ***, but sk-12345"),
        ("s3cret-k", "Nos3cret-key", "No***ey"),
    ],
)
def test_a_short_key_is_masked_as_a_word_only(key, text, said):
    with pytest.raises(ModelError) as caught, mask_keys_in_errors(lambda: [key]):
        raise ModelError(text)
    assert str(caught.value) == said


def test_an_error_that_has_a_short_key_only_inside_of_words_is_unchanged():
    raised = ModelError("Incorrect API key provided")
    with pytest.raises(ModelError) as caught, mask_keys_in_errors(lambda: ["k"]):
        raise raised
    assert caught.value is raised


def test_without_a_key_nothing_is_changed():
    raised = ModelError("It failed")
    with pytest.raises(ModelError) as caught, mask_keys_in_errors(lambda: [None]):
        raise raised
    assert caught.value is raised


def test_headers_with_keys_are_recognized_by_name():
    headers = {"authorization": "Basic abc", "X-Api-Key": KEY, "Accept": "text/html", "cookie": 5}
    assert list(find_keys(headers)) == ["abc", KEY]
