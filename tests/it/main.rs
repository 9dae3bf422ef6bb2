//! The one integration binary: everything that is tested from outside.

mod process;
