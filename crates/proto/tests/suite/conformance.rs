//! RFC 9113 sentence by sentence: hand-made frames to a server and to a client, and what they must make of them: an
//! error of the connection (GOAWAY) or of the stream (RST_STREAM), its code, or nothing.

mod compression;
mod continuation;
mod deadlines;
mod defaults;
mod first_settings;
mod frames_of_connections;
mod frames_of_streams;
mod framing;
mod hostile;
mod malformed;
mod next_deadline;
mod own_settings;
mod preface;
mod push;
mod settings;
mod states;
mod windows;
