"""The nouns: frozen values, standard library only, one idea a file."""
