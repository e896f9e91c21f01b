"""The upload of a voice in ElevenLabs' shape."""

import pytest

from app.api.shapes.elevenlabs import ElevenLabsVoiceForm
from app.engine.errors import InvalidRequest


@pytest.mark.parametrize(
    ("labels", "language"),
    [
        ("", None),
        ("null", None),  # from their package 2.78, where no labels are given
        ('{"language": "en", "accent": "british"}', "en"),
        (r'"{\"language\": \"en\"}"', "en"),  # where they are given as a text
    ],
)
def test_labels_are_read_as_each_version_of_their_package_sends_them(labels, language) -> None:
    form = ElevenLabsVoiceForm(name="My Voice", labels=labels, consent="true").ours()
    assert (form.name, form.language) == ("my-voice", language)


@pytest.mark.parametrize("labels", ["[]", "1", '"[]"', '"x"', "{"])
def test_other_labels_are_refused(labels) -> None:
    with pytest.raises(InvalidRequest, match="labels"):
        ElevenLabsVoiceForm(name="My Voice", labels=labels, consent="true").ours()
