"""Files that `valle-serve speak` reads: what kind one is, and its text, chapters and title.

The parsers are the standard library's: zipfile, html.parser and ElementTree. Markdown is left as it
is written, as the front end of the model reads it. The package does not know who speaks the text.
"""
