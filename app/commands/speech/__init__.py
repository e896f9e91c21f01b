"""What `valle-serve speak` consists of: flags, the request and its outputs, long texts, players."""
