//! Ring-buffer records to events.
