"""Everything about Flower: the engine, a site's lasting process, the two halves of the app, and how a job gets there.

Importing this package imports nothing of Flower; `engine`, `site` and `app` do.
"""
