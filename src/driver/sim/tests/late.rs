//! The queue runs late; mappings, memory and waits follow it.
