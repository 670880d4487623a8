//! Where the fields are of what programs share with evenly, in bytes from the beginning of each structure, as the
//! compiler of C has laid it out (`probe/build.rs`).

include!(concat!(env!("OUT_DIR"), "/layout.rs"));
