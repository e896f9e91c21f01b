"""Parts of texts of every kind, to be joined to texts that nobody has seen."""

# ruff: noqa: E501, RUF001 - texts of a line each, with signs of every kind

from typing import Final

PARTS: Final = (
    *("Hello there.", "How are you? I am fine.", "The cat sat", "on the mat.", "Dr. Smith left.",
      "It costs $5 and $10.", "Well... maybe.", 'He said "Stop. Go." twice.', "At 5 p.m. The end.",
      "in the", "I", "A", "a", "5", "12", "1999", "-", "—", "word-", "experi-\nment", "well-\nknown",
      "soft\u00ad\nly", "x\u00ady", "up-\nand down"),
    *("1. Paris", "2. **Rome** is old", "10) 5 eggs", "(3) third", "- milk", "* eggs", "+ salt",
      "• dot", "– dash", "a. one", "b) two", "ii. two", "A. Paris", "B. Rome", "C) Oslo",
      "- [ ] task", "- [x] done", "   - nested", "  continued", "1\ufe0f\u20e3 keycap", "✅ yes",
      "**1. Bold**", "1\\. escaped", "3.\ttab", "1 - Mix it", "2 – stir", "9 - 4 = 5", "• a • b",
      "p. 7", "II. Methods", "XI", "IIX. none", "hard\\\nbreak"),
    *("# Head", "## Head two ##", "Title\n=====", "Title\n---", "---", "***", "**Bold line**",
      "> quoted", "> - item", ">", "Name: John", "Age: 42", "**City:** Rome", "Note: see"),
    *("| a | b |", "|---|:-:|", "| 1 | 2 |", "x | y\n--- | ---\n1 | 2", "|", "+---+---+", "a|b"),
    *("```bash\npip install x\n```", "```", "~~~", "```x```", "`code`", "`<script>`", "``a ` b``",
      "`", "``", "# comment", "$ npm i"),
    *("[the guide](guide.md)", "![logo](logo.png)", "![](x.png)", "[](y)", "[docs][1]", "[API] [r]",
      "[1]: https://a.b/c", "[r]: ./api.md", "[x](a_(b) \"t. T\")", "<https://a.b>", "https://a.b/c",
      "[![b](i.svg)](https://x.y)", "[", "]", "(", "!", "!["),
    *("why.[^1]", "[^1]: A note.", "[12]", "fact[3].", "in [4]", "[[5]](https://x.y)", "[6](http://a)",
      "why.¹³", "x²", "10⁻³", "5 km²", "word¹,²", "¹ See", "A dog<sup>1</sup>", "x<sup>2</sup>",
      "5<sup>th</sup>", "【1†s】"),
    *("<p>One</p>", "<ul><li>A</li><li>B</li></ul>", "<br>", "<b>bold</b>", "<td>c</td>", "<tr>",
      "<style>p{a:b}</style>", "<script>x. Y</script>", "<!-- no. No -->", "<!--", "<script>",
      '<img src="a.b" alt="A. Dog">', "<", ">", "a < b", "I <3 you", "</think>", "<head>", "<p"),
    *("&amp;", "&rsquo;", "&#8217;", "&amp;lt;", "&#38;gt;", "&", "&nbsp;", "&x;", "&#10;", "&lt;p&gt;",
      "&hellip;", "&#42;"),
    *("<think>I should. Yes.</think>", "<thinking>\n\nno\n</thinking>", "<think>", "[THINK]a[/THINK]"),
    *("$a^2 + b^2$", r"\(x\)", r"\[ x = 1. 5 \]", "$$\n\\frac{1}{3}\n$$", r"$\frac{1}{k!} = e$", "$",
      "$$", r"\(", r"\begin{equation}x! = 1\end{equation}", r"\textbf{bold}", "\\", r"\section{In}",
      r"\alpha", r"C:\Users"),
    *("1\n00:00:34,740 --> 00:00:37,050\nHello.", "00:01.000 --> 00:02.000", "WEBVTT", "\n7\n",
      "NOTE", "NOTE x. Y", "---\ntitle: x\n---\n", "+++\na = 1\n+++"),
    *("[pause:1s]", "[rate:0.8]", "[voice:emma]", "[[həlˈoʊ]]", '<break time="1s"/>',
      '<sub alias="a b">x</sub>', '<prosody rate="slow">s. T</prosody>', "<speak>", "\r\n", "\t"),
    *("Chapter 01", "CHAPTER I.", "CHAPTER V. DOWN", "Act I", "I. Introduction", "I. Arrival of",
      "I. He came. She", "[The door opens]", "[1]", "[A: b]", "p. 20ff.", "Henry V", "Henry I", "V. End", "X", "Gen.", "1:1", "12f.", "(╯°□°)╯",
      ":-)", "<3", "T_T", '27"', "12' x 10'", "John 3:", "16-18", "notes.", "txt", "Ca(OH)2", "😊", "猫", "。", "é", "e\u0301"),
)  # fmt: skip
