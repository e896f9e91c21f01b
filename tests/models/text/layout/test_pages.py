"""Books, web pages, subtitles and printed text are read without their layout."""

# ruff: noqa: E501 - a text a line, with signs of every kind

import pytest

from tests.models.text.reading import prepare

READ = [
    ('It&#8217;s written, isn&rsquo;t it? Hello&nbsp;world &mdash; fine', ["It's written, isn't it?", 'Hello world — fine']),
    ('<style>p{color:red}</style><script>alert(1)</script><!-- x -->Hi there.', ['Hi there.']),
    ('Nobody knew why.¹³ See the notes.', ['Nobody knew why.', 'See the notes.']),
    ('It is 10 m² of x² and 10⁵, see why.² And [12] more[12]. Then.[^1]\n\n[^1]: A note.', ['It is ten square meters of x squared and ten to the power of five, see why.', 'And [twelve] more.', 'Then.', 'A note.']),
    ('1\n00:00:34,740 --> 00:00:37,050\nHello.\n\n2\n00:00:38,000 --> 00:00:39,000\nYou are', ['Hello.', 'You are']),
    ('WEBVTT\n\n00:01.000 --> 00:04.000\n<v Roger>Hello there.\n\nintro\n00:05.000 --> 00:06.000\nGood bye.', ['Hello there.', 'Good bye.']),
    ('---\ntitle: My Book\nauthor: Me\n---\n\nIt begins.', ['It begins.']),
    ('The experi-\nment was well-\nknown.', ['The experiment was well-known.']),
    ('<thinking>I should greet.</thinking>Hello!', ['Hello!']),
    ('Name | Age\n--- | ---\nJohn | 42\nAnn | 37', ['Name, Age', 'John, forty-two', 'Ann, thirty-seven']),
    ('Use `<script>` and `</script>` tags. Then `pip`.', ['Use script and script tags.', 'Then pip.']),
    ('A line.[^note] Another[^2].\n\n[^note]: The note.\n[^2]: Second note.', ['A line.', 'Another.', 'The note.', 'Second note.']),
    ('Title\n=====\nText.\n\nSub\n---\nMore.', ['Title', 'Text.', 'Sub', 'More.']),
    ('Line one.\n\n---\n\nLine two.\n\n***\n\nLine three.', ['Line one.', 'Line two.', 'Line three.']),
    ('Caf&eacute; &amp; bar &hellip; 5 &lt; 6 &#x27;yes&#39; &copy; 2020 &amp;amp; &amp;rsquo; &euro;5 &frac12; AT&T R&D; x', ["Café and bar... five less than six 'yes' copyright twenty twenty and ' five euros one half AT and T R and D; x"]),
    ('<p>First para.</p><p>Second <b>one</b></p><ul><li>Milk</li><li>Eggs</li></ul>', ['First para.', 'Second one', 'Milk', 'Eggs']),
    ('<table><tr><th>Day</th><th>High</th></tr><tr><td>Mon</td><td>20</td></tr></table>', ['Day, High', 'Mon, twenty']),
    ('<!DOCTYPE html><html><head><title>T</title></head><body><h1>Title</h1>Text<br>Line two<br/>x</body></html>', ['Title', 'Text Line two x']),
    ('E = mc² holds.² The area is 5 km², (a+b)² is good. He said it (see above).³ "Quote"⁴ and word¹,² end. x⁻³ and 2¹⁰.', ['E equals mc squared holds.', 'The area is five square kilometers, (a plus b) squared is good.', 'He said it (see above).', '"Quote" and word end.', 'x to the power of minus three and two to the power of ten.']),
    ('Water<sup>2</sup> is x<sup>2</sup>, the 5<sup>th</sup> of<sup>[3]</sup> May, e<sup>-x</sup>.', ['Water is x squared, the fifth of May, e -x.']),
    ('As shown before [3], and by Smith [4, 5]. In [6] they say. It was raining.[7][8] See [9].', ['As shown before, and by Smith.', 'In [six] they say.', 'It was raining.', 'See [nine].']),
    ('Rome[1](https://a.b/c) is old [2](https://a.b). And so [[3]](https://x.y).', ['Rome is old.', 'And so.']),
    ('a sen\xadtence with soft\xad hyphens, exam\xad\nple. The short-\nand long-term state-of-the-\nart. A self-\nmade man. He said -\nthen left.', ['a sentence with soft hyphens, example.', 'The short- and long-term state-of-the-art.', 'A self-made man.', 'He said - then left.']),
    ('<think>\nOkay, the user says hi.\n\nI should greet.\n</think>\n\nHello there!', ['Hello there!']),
    ('<reasoning>a</reasoning> [THINK]hm[/THINK]Fine. <seed:think>x</seed:think>Yes.', ['Fine.', 'Yes.']),
    ('Chapter 01', ['Chapter one']),
    ('CHAPTER I.\nIt was the best of times.', ['CHAPTER one.', 'It was the best of times.']),
    ('Act I, Scene II. Part I of II. Book IV. In Part I we see. Volume I is good. World War I ended. The Part I played.', ['Act one, Scene two.', 'Part one of two.', 'Book four.', 'In Part one we see.', 'Volume one is good.', 'World War one ended.', 'The Part I played.']),
    ('1\n00:00:01,000 --> 00:00:02,500\n<i>Hello, my dear</i>\n\n2\n00:00:02,600 --> 00:00:04,000\n{\\an8}friend. How are\nyou?\n\n3\n00:00:05,000 --> 00:00:06,000\n- Fine.\n- Me too.', ['Hello, my dear friend.', 'How are you?', 'Fine.', 'Me too.']),
    ('WEBVTT - Title\nKind: captions\n\nNOTE\na comment\n\n1\n00:00:01.000 --> 00:00:02.000 align:start\nSo <c.yellow>we</c> <00:00:01.500>go.\n\n00:00:02.000 --> 00:00:03.000\nOn and on.', ['So we go.', 'On and on.']),
    ('+++\ntitle = "x"\n+++\nText.', ['Text.']),
    ('---\nNot front matter. Just text.\n---', ['Not front matter.', 'Just text.']),
    ('See <https://a.b/c> or mail <me@a.com>. A [mail](mailto:me@a.com).', ['See a dot b slash c or mail me at a dot com.', 'A mail.']),
    ('Hello <!-- hidden\nnote --> world. 5 < 6 and 7 > 6. I <3 you. a<b', ['Hello world.', 'five less than six and seven greater than six.', 'I you.', 'a b']),
    ('<img src="a.png" alt="A dog"> and <a href="x">link</a> <span>x</span>.', ['A dog and link x.']),
    ('A dog.<sup><a href="#fn1">1</a></sup> A cat<sup class="ref">[2]</sup>.', ['A dog.', 'A cat.']),
    ('Einstein¹ said E=mc², it² was true.³,⁴ 5 ft² and 3 m³. R² is 0.9. ¹ See there.', ['Einstein said E equals mc squared, it was true.', 'five square feet and three cubic meters.', 'R squared is zero point nine.', 'See there.']),
    ('<p>One</p>\n<p>Two</p>\n<ol>\n  <li>A</li>\n  <li>B</li>\n</ol>', ['One', 'Two', 'A', 'B']),
    ('<h2>Title</h2><p>It&rsquo;s &ldquo;fine&rdquo;&hellip;</p>', ['Title', 'It\'s "fine"...']),
    ('<div>Hello<div>World</div></div>', ['Hello', 'World']),
    ('Tom &amp; Jerry &#38; Co &nbsp; x &unknown; &#xZZ; &#0; &#128512;', ['Tom and Jerry and Co x and unknown; and xZZ;']),
    ('<!-- a --> B <!-- c\nd --> E', ['B E']),
    ('---\nlayout: post\ntags: [a, b]\ndate: 2024-01-01\n---\n# Title', ['Title']),
    ('To be con-\ntinued. Anti-\nsocial and co-\noperate, twenty-\nfive.', ['To be continued.', 'Antisocial and cooperate, twenty-five.']),
    ('Scene 3. Book 02. Act III. ACT V. CHAPTER XIV. Down the hole', ['Scene three.', 'Book two.', 'Act three.', 'ACT five.', 'CHAPTER fourteen.', 'Down the hole']),
    ('CHAPTER V. ADVICE FROM A CATERPILLAR\nThe Caterpillar looked.', ['CHAPTER five.', 'ADVICE FROM A CATERPILLAR', 'The Caterpillar looked.']),
    ('Season 01 Episode 05', ['Season one Episode five']),
    ('a <think>b</think> c <thought>d</thought>', ['a c']),
    ('Use `<think>` tags. <think>no</think> Yes.', ['Use think tags.', 'Yes.']),
    ('WEBVTT\n\nNOTE a comment\n\nintro\n00:00.000 --> 00:02.000\nHi there.', ['Hi there.']),
    ('I. Introduction\n\nText.\n\nII. Methods\nMore.', ['one, Introduction', 'Text.', 'two, Methods', 'More.']),
    ('I. THE BEGINNING\nOnce upon a time.\nV. Conclusion\nWe won.', ['one, THE BEGINNING', 'Once upon a time.', 'five, Conclusion', 'We won.']),
    ('I. A Scandal in Bohemia', ['one, A Scandal in Bohemia']),
    ('It was I. Newton was not there.', ['It was I.', 'Newton was not there.']),
    ('ROSA Hello\n[The door opens]\nWho is it', ['ROSA Hello', '[The door opens]', 'Who is it']),
    ('[Verse 1]\nHello there', ['[Verse one]', 'Hello there']),
    ('[link](<a b.md>) and [x](y "t") [empty]() [wiki](Page_(x)) ', ['link and x empty wiki']),
]  # fmt: skip


@pytest.mark.parametrize(("written", "read"), READ, ids=[row[0][:30] for row in READ])
def test_html_is_read_as_the_utterances_it_shows(written: str, read: list[str]) -> None:
    assert [one.text for one in prepare(written)] == read
