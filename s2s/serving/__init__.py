"""HTTP server for trained models: requests are batched and computed in one thread."""
