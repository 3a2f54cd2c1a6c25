"""What a transcript is, without torch and without HTTP: its words, their times, how parts are joined and written."""
