"""Files are told by their contents: what is read of each kind, and why others are refused."""

# ruff: noqa: RUF001 - quotes and dashes

import zipfile
from io import BytesIO

import pytest

from app.commands.speech.documents.document import Document, DocumentError
from app.commands.speech.documents.files import read_document
from tests.app.commands.speech.documents.books import bare, epub2, epub3, png, zipped
from tests.models.text.reading import prepare


def read(content: bytes | str, name: str = "book") -> Document:
    return read_document(content.encode() if isinstance(content, str) else content, name)


def outline(document: Document) -> list[tuple[str, str]]:
    return [(one.title, one.text.strip()) for one in document.chapters]


def test_an_epub_3_has_chapters_title_authors_and_cover() -> None:
    book = epub3([
        ("One", "<h1>One</h1><p>It was   <i>late</i>&#8212;very&nbsp;late.</p><p>He left.</p>"),
        ("Two &amp; Three", "<h1>Two</h1><p>The end.</p>"),
    ])
    document = read(book)
    assert (document.title, document.author) == ("A Walk", "Ann Author, Bob Co")
    assert document.cover == png()
    assert outline(document) == [
        ("One", "One\n\nIt was late—very late.\n\nHe left."),
        ("Two & Three", "Two\n\nThe end."),
    ]


def test_an_epub_2_of_one_file_is_divided_where_its_contents_lead() -> None:
    body = (
        "<p>Old Tales</p><h2 id='a'>I</h2><p>First.</p><div><a id='b'></a><h2>II</h2>"
        "<p>Second.<br/>More.</p></div><p id='c'>Third.</p>"
    )
    document = read(epub2(body, [("Tale 1", "a"), ("Tale 2", "b"), ("Tale 3", "c")]))
    assert outline(document) == [
        ("Old Tales", "Old Tales"),
        ("Tale 1", "I\n\nFirst."),
        ("Tale 2", "II\n\nSecond.\nMore."),
        ("Tale 3", "Third."),
    ]
    assert (document.title, document.cover) == ("Old Tales", png())


def test_an_epub_without_contents_has_a_chapter_a_file() -> None:
    book = bare(["<h1>Start</h1><p>One.</p>", "<p>Two.</p>", "<svg><text>No</text></svg>"])
    assert outline(read(book)) == [("Start", "Start\n\nOne."), ("Start", "Two.")]


NOTED = (
    '<p>Nobody knew why<a epub:type="noteref" href="#n">1</a>.<span role="doc-pagebreak">12</span>'
    ' So <ruby>東京<rt>tōkyō</rt></ruby> it was.</p><aside epub:type="footnote" id="n"><p>A note.'
    '</p></aside><section role="doc-endnotes"><p>Notes.</p></section><p hidden="hidden">Gone.</p>'
    '<p style="display: none">Gone.</p><script>alert(1)</script><!-- no --><p>On.</p>'
)


def test_what_is_beside_the_text_of_a_book_is_not_read() -> None:
    (chapter,) = read(epub3([("One", NOTED)])).chapters
    assert chapter.text.strip() == "Nobody knew why. So 東京 it was.\n\nOn."


@pytest.mark.parametrize(
    "body",
    [
        '<p>Why<a class="footnote-ref" href="#f"><sup>1</sup></a>?</p>',
        '<p>Why<sup><a href="#f">1</a></sup>?</p>',
        '<p>Why<a href="#f"><sup>1</sup></a>?</p><ol class="footnotes"><li>No.</li></ol>',
        '<p>Why?</p><ol><li><aside role="doc-footnote">No.</aside></li></ol>',
    ],
)
def test_notes_and_their_marks_are_told_in_books_that_do_not_name_them(body) -> None:
    assert outline(read(epub3([("One", body)]))) == [("One", "Why?")]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("E = mc<sup>2</sup> holds.", "E = mc² holds."),
        ("10<sup>6</sup> m<sup>3</sup>", "10^6 m³"),
        ("the 1<sup>st</sup> day", "the 1st day"),
        ("Nobody knew.<sup>12</sup> Why<sup>[3]</sup>?", "Nobody knew. Why?"),
    ],
)
def test_an_exponent_is_no_mark_of_a_note(body, text) -> None:
    assert outline(read(epub3([("One", f"<p>{body}</p>")]))) == [("One", text)]


def test_nothing_in_a_book_is_markup_of_ours() -> None:
    text = "<p>He typed [pause:1s], [[x]], [voice: he], &lt;break/&gt; and &amp;amp; then [12].</p>"
    (chapter,) = read(epub3([("One", text)])).chapters
    (spoken,) = prepare(chapter.text)
    assert spoken.text.startswith("He typed (pause:")
    assert spoken.pause_after_s is None


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (b"PK\x03\x04 no", "damaged EPUB or ZIP"),
        (zipped({"META-INF/container.xml": "<container/>"}), "names no contents"),
        (zipped({"META-INF/container.xml": "<contai"}), "is no XML"),
        (bare([]), "it has no text"),
        (bare(["<p></p>"]), "it has no text"),
        (epub3([("One", "<p>Hi.</p>")])[:-200], "damaged"),
    ],
)
def test_a_damaged_epub_is_refused_in_a_line(damaged, why) -> None:
    with pytest.raises(DocumentError, match=why):
        read(damaged)


def test_an_encrypted_text_is_refused_and_encrypted_fonts_are_not() -> None:
    def encrypted(path: str) -> bytes:
        out = BytesIO(epub3([("One", "<p>Hi.</p>")]))
        with zipfile.ZipFile(out, "a") as archive:
            locked = (
                "<encryption><EncryptedData><CipherData><CipherReference"
                f' URI="{path}"/></CipherData></EncryptedData></encryption>'
            )
            archive.writestr("META-INF/encryption.xml", locked)
        return out.getvalue()

    assert outline(read(encrypted("OEBPS/fonts/a.otf"))) == [("One", "Hi.")]
    with pytest.raises(DocumentError, match="encrypted"):
        read(encrypted("OEBPS/text/c0.xhtml"))


PAGE = """<!-- saved --><!DOCTYPE html><html><head><title>My  page</title>
<meta charset=utf-8><style>p{}</style><body><nav><a href=/>Home</a></nav>
<h1>Fruit &amp; veg</h1><p>It&rsquo;s here.<p>So<br>it is.
<h2>Apples</h2><ul><li>Red<li>Green</ul><ol start=3><li>Go</li><li>Stop</li></ol>
<h2>Pears</h2><table><tr><th>Day<th>High<tr><td>Mon<td>20</table><hr>
<pre>a
b</pre><script>if (a<b) alert("</p>")</script><button>Buy</button>"""


def test_a_page_is_read_by_its_blocks_and_divided_at_its_headings() -> None:
    document = read(PAGE)
    assert (document.title, document.has_lines) == ("My page", False)
    assert outline(document) == [
        ("My page", "Fruit & veg\n\nIt’s here.\n\nSo\nit is."),
        ("Apples", "Apples\n\n- Red\n\n- Green\n\n3. Go\n\n4. Stop"),
        ("Pears", "Pears\n\nDay, High\n\nMon, 20\n\na\nb"),
    ]


@pytest.mark.parametrize(
    "head", ["<html>", "\n<!doctype HTML>", "<?xml version='1.0'?>\n<html>", "<body>"]
)
def test_a_page_is_told_by_what_it_begins_with(head) -> None:
    assert read(f"{head}<p>Hi <b>there</b>.</p>").text.strip() == "Hi there."


def test_elements_that_are_never_closed_are_read() -> None:
    document = read("<html>" + "<p>One.<li>Two." * 2000)
    assert document.text.count("One.") == 2000


SRT = """1
00:00:34,740 --> 00:00:37,050
<i>Hello.</i>

2
00:00:37,100 --> 00:00:39,000
I went to
the shop

3
00:00:39,000 --> 00:00:41,000
- and left. [laughs]

4
00:00:42,000 --> 00:00:43,000
[MUSIC]

5
00:00:50,000 --> 00:00:51,000
{\\an8}♪ la la
Later &amp; on.
"""
VTT = """WEBVTT Kind: captions

NOTE a word

STYLE
::cue{}

intro
00:34.740 --> 00:37.050 line:0
<v Ann>Hello.</v>

00:37.100 --> 00:39.000
<c.x>Hello.</c>
You.
"""


def test_subtitles_are_read_as_sentences() -> None:
    assert read(SRT).text.strip() == ("Hello. I went to the shop and left. [laughs]\n\nLater & on.")
    assert read(SRT.replace("\n", "\r\n")).text == read(SRT).text
    assert read("\ufeff" + SRT).text == read(SRT).text
    assert read(VTT).text.strip() == "Hello. Hello. You."


def test_front_matter_tells_title_and_author_and_keeps_the_numbers_of_lines() -> None:
    text = '---\ntitle: "My Book"\nauthor: Me\n---\n# One\n\nHi.\n\n# Two\n\n```\n# no\n```\nBye.\n'
    document = read(text)
    assert (document.title, document.author) == ("My Book", "Me")
    assert [one.title for one in document.chapters] == ["My Book", "One", "Two"]
    lines = document.text.split("\n")
    assert (lines[4], lines[13]) == ("# One", "Bye.")


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        (
            "Intro.\n\nCHAPTER I.\n\nOne.\n\nCHAPTER II. A Tale\n\nTwo.\n",
            ["", "CHAPTER I.", "CHAPTER II. A Tale"],
        ),
        (
            "PROLOGUE\n\nOnce.\n\nChapter One\n\nHi.\n\nEpilogue\n\nBye.",
            ["PROLOGUE", "Chapter One", "Epilogue"],
        ),
        ("## A\n\nx\n\n## B\n\ny", ["A", "B"]),
        ("# Title\n\n## A\n\nx\n\n## B\n\ny", ["", "A", "B"]),
        ("Chapter one of my life\nbegan here. Letter 5 came.", [""]),
        ("No chapters.", [""]),
    ],
)
def test_a_text_is_divided_at_its_headings_and_none_of_it_is_lost(text, titles) -> None:
    document = read(text)
    assert [one.title for one in document.chapters] == titles
    assert document.text == text


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"%PDF-1.7\n", "this is a PDF: save it as text"),
        (rb"{\rtf1\ansi", "this is an RTF document"),
        (b"\xd0\xcf\x11\xe0\xa1", "older Microsoft Office"),
        (zipped({"word/document.xml": ""}), "this is a Word document"),
        (zipped({"xl/workbook.xml": ""}), "this is a spreadsheet"),
        (zipped({"content.xml": ""}), "this is a document of LibreOffice"),
        (zipped({"book.txt": "Hi."}), "this is a ZIP archive: unpack it"),
        (b"\x00" * 60 + b"BOOKMOBI", "this is a Kindle book: convert it to EPUB"),
        (b"\x1f\x8b\x08", "this is a gzip archive"),
        (png(), "this is a picture"),
        (b"RIFF\x00\x00\x00\x00WAVE", "this is a sound"),
        (b"ID3\x03", "this is a sound"),
        (b"\x00\x00\x00\x1cftypM4B ", "this is a sound or a film"),
        (b'<?xml version="1.0"?>\n<FictionBook xmlns="x">', "this is a FictionBook"),
        (b"<svg xmlns='x'>", "this is a picture"),
        (
            "Caf\u00e9".encode("cp1252"),
            r"perhaps WINDOWS-1252: .*iconv -f WINDOWS-1252 -t UTF-8 a.txt",
        ),
        ("Hello.".encode("utf-16-le"), "perhaps UTF-16"),
        ("Caf\u00e9.".encode("utf-16-be"), "perhaps UTF-16"),
    ],
)
def test_other_files_are_refused_by_their_kind(content, why) -> None:
    with pytest.raises(DocumentError, match=why):
        read(content, "a.txt")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_mark_tells_the_encoding(encoding) -> None:
    mark = {"utf-16-le": "\ufeff", "utf-16-be": "\ufeff"}.get(encoding, "")
    assert read(f"{mark}Café “x”.".encode(encoding)).text == "Café “x”."


def test_a_page_may_say_its_encoding() -> None:
    for said in ('<meta charset="windows-1252">', "<meta charset=ISO-8859-1>"):
        page = f"<html>{said}<p>Café “x”.</p>".encode("cp1252")
        assert read(page).text.strip() == "Café “x”."
