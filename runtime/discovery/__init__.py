"""What the credentials can call, as the providers themselves say.

    asking      the accounts of a catalog, and one question to each: its list of models
    comparing   what of a catalog is listed, what is no longer, what is new. Pure
    entries     what a catalog should say of a model that is new to it
    writing     the catalog file with what was found, checked before it takes the old one's place

Only the command line imports it.
"""
