"""What a run says, as one page: `view` decides the words, `html` writes them."""
