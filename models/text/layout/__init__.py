"""The layout of texts as chat models, web pages and books write it, resolved as a text arrives.

What is nothing to say is left out, and what is a line of its own becomes a paragraph; the words
stay as they were written. A piece of the result is layout that stands alone, and going through it
once more changes nothing: `normalise.symbols` reads it without knowing the pieces before.

A parser of Markdown (markdown-it-py was looked at) reads whole documents only, and tells lines of a
source but not where the words of a line stand. Neither pieces of a growing text nor the times of
its words could come from it.
"""
