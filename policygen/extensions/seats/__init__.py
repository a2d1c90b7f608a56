"""A model beside the loop: it decides every step (`drive`) or plans when asked (`mediate`)."""
