//! A store in memory with the semantics of the API server, for tests.
