//! Model files: what others have saved is loaded, uploaded or when it is used, and nothing that contradicts
//! itself ever is.

#[path = "model/files.rs"]
mod files;
#[path = "model/loads.rs"]
mod loads;
