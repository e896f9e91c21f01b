"""The studio: a web page to try every knob, and the files of other authors that pages need.

Owns the page's files and their routes, and those of the interactive documentation.
Does not know what the API does: the page reads `/openapi.json` like any other client.
"""
