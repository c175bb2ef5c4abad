import pytest

from toolsemble import ModelError, ToolConfigurationError
from toolsemble.models._adapter.errors import find_keys, mask_keys_in_errors

KEY = "s3cret-key"


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (ModelError(f"No such key: {KEY}", retryable=True, retry_after=2.0), ModelError, "No such key: ***"),
        (ToolConfigurationError(f"Not {KEY}"), ToolConfigurationError, "Not ***"),
        (ValueError(f"Not {KEY}"), ModelError, "Not *** (ValueError)"),
    ],
)
def test_error_is_raised_without_the_key(raised, kind, message):
    with pytest.raises(kind) as caught, mask_keys_in_errors(lambda: [None, "", 5, KEY]):
        raise raised
    assert (type(caught.value), str(caught.value)) == (kind, message)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_masked_error_keeps_retryable():
    with pytest.raises(ModelError) as caught, mask_keys_in_errors(lambda: [KEY]):
        raise ModelError(f"Not {KEY}", retryable=True, retry_after=2.0)
    assert (caught.value.retryable, caught.value.retry_after) == (True, 2.0)


def test_cause_is_dropped_only_if_it_contains_key():
    harmless, telling, noted = ValueError("too long"), ValueError(KEY), ValueError("see below")
    noted.add_note(f"sent: {KEY}")
    for cause, kept in ((harmless, harmless), (telling, None), (noted, None)):
        with pytest.raises(ModelError) as caught, mask_keys_in_errors(lambda: [KEY]):
            raise ModelError("It failed") from cause
        assert (str(caught.value), caught.value.__cause__) == ("It failed", kept)


def test_circular_error_contexts_are_handled():
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one
    with pytest.raises(ModelError, match="It failed"), mask_keys_in_errors(lambda: [KEY]):
        raise ModelError("It failed") from one


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("k", "Incorrect API key provided: k. Check k", "Incorrect API key provided: ***. Check k"),
        ("key", "Incorrect keys: 'key', monkeys", "Incorrect keys: '***', monkeys"),
        ("sk-1234", "No sk-1234, but sk-12345", "No ***, but sk-12345"),
        ("s3cret-k", "Nos3cret-key", "No***ey"),
    ],
)
def test_masks_a_short_key_as_a_word_only(key, text, said):
    with pytest.raises(ModelError) as caught, mask_keys_in_errors(lambda: [key]):
        raise ModelError(text)
    assert str(caught.value) == said


def test_error_with_a_short_key_inside_words_is_unchanged():
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
