//! Placeholder for what comes next.
