"""Does a classifier get worse with the length of the text? What reads word by word must carry everything to the end."""
