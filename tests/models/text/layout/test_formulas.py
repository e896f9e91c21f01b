"""Formulas in LaTeX are read as mathematics; two prices are none."""

# ruff: noqa: E501 - a text a line, with signs of every kind

import pytest

from tests.models.text.reading import prepare

READ = [
    ('The rule is $a^2 + b^2 = c^2$, \\(x\\), $$\\frac{1}{3}$$', ['The rule is eh squared plus b squared equals c squared, x, one third']),
    ('\\(a + b\\) and \\[x = \\frac{-b \\pm \\sqrt{b^2 - 4ac}}{2a}\\]', ['eh plus b and x equals minus b plus or minus the square root of b squared minus four eh c over two eh']),
    ('$$\n\\sum_{i=1}^{n} i = \\frac{n(n+1)}{2}\n$$', ['the sum from i equals one to n of i equals n (n plus one) over two']),
    ('The limit $\\lim_{x \\to 0} \\frac{\\sin x}{x} = 1$ and $\\int_0^1 x^2 \\, dx$ is $1/3$.', ['The limit the limit as x approaches zero of sine x over x equals one and the integral from zero to one of x squared d x is one over three.']),
    ('It costs $5 and $10, or $5-$10. Set $HOME and $PATH. $x$ is 5. I have $20 in my bank and 30$ in cash. From $1 to $2.', ['It costs five dollars and ten dollars, or five to ten dollars.', 'Set dollar HOME and dollar PATH.', 'x is five.', 'I have twenty dollars in my bank and thirty dollars in cash.', 'From one dollar to two dollars.']),
    ('$\\alpha \\approx 3.14$, $x_1$, $x_i^2$, $\\vec{F} = m\\vec{a}$, $\\mathbb{R}^n$, $\\text{if } x > 0$, $90^\\circ$, $n!$, $f(x)$, $10^{-3}$', ['alpha approximately equals three point one four, x sub one, x sub i squared, vector F equals m vector eh,', 'R to the power of n, if x is greater than zero, ninety degrees, n factorial, f of (x), ten to the power of minus three']),
    ('\\section{Intro} This is \\textbf{bold} and \\emph{it} as in \\cite{knuth84}, see \\LaTeX. C:\\Users\\name is a path.', ['Intro', 'This is bold and it as in, see LaTeX.', 'C colon backslash Users backslash name is a path.']),
    ('He paid `x = $5`. And $\\$5$.', ['He paid x equals five dollars.', 'And five dollars.']),
    ('Math: $x^2$ costs $5.', ['Math: x squared costs five dollars.']),
    ('For $n \\in \\mathbb{N}$ we have $\\sum_{k=0}^\\infty \\frac{1}{k!} = e$.', ['For n in N we have the sum from k equals zero to infinity of one over k factorial equals e.']),
    ('\\begin{equation}\nE = mc^2\n\\end{equation}\nThen.', ['E equals m c squared', 'Then.']),
    ('\\[\n\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}\n\\]', ['eh b, c d']),
    ('$$x = 5$$ is it. $$\ny = 6\n$$', ['x equals five is it.', 'y equals six']),
    ('\\frac{1}{2} of \\alpha \\times \\beta.', ['one half of alpha times beta.']),
    (r'It is $\$5.50$, $20\%$ more, $\$1{,}000$ a day, so $x = \$5$.', ['It is five dollars and fifty cents, twenty percent more, one thousand dollars a day, so x equals five dollars.']),
    ('$1,000$ and US$5 and 5$ and $x$-axis and the $n$-th', ['one thousand and five U S dollars and five dollars and x-axis and the n-th']),
]  # fmt: skip


@pytest.mark.parametrize(("written", "read"), READ, ids=[row[0][:30] for row in READ])
def test_a_formula_is_read_as_words(written: str, read: list[str]) -> None:
    assert [one.text for one in prepare(written)] == read
