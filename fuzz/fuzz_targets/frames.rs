//! The frame parser: any octets are a frame or an error with a code that the RFC names, and what is parsed lies within
//! what was given.
#![no_main]

use fullbore_proto::ErrorCode;
use fullbore_proto::frame::{FRAME_HEADER_LENGTH, Frame, FrameHeader, Settings, parse};
use libfuzzer_sys::fuzz_target;

/// Whether `part` is a slice of `whole`.
fn lies_within(part: &[u8], whole: &[u8]) -> bool {
    part.is_empty() || whole.as_ptr_range().contains(&part.as_ptr()) && part.len() <= whole.len()
}

fn check(header: FrameHeader, payload: &[u8]) {
    let frame = match parse(header, payload) {
        Ok(frame) => frame,
        Err(error) => {
            let codes = [
                ErrorCode::PROTOCOL_ERROR,
                ErrorCode::FRAME_SIZE_ERROR,
                ErrorCode::FLOW_CONTROL_ERROR,
            ];
            assert!(codes.contains(&error.code) && !error.reason.is_empty());
            assert!(error.stream.is_none() || error.stream == header.stream);
            return;
        }
    };
    match frame {
        Frame::Headers(headers) => {
            assert_eq!(Some(headers.stream), header.stream);
            assert!(lies_within(headers.fragment, payload));
        }
        Frame::Continuation(continuation) => assert_eq!(continuation.fragment, payload),
        Frame::Settings(Settings::Ack) => assert!(payload.is_empty()),
        Frame::Settings(Settings::Values(entries)) => {
            assert_eq!(entries.len() * 6, payload.len());
            for (setting, octets) in entries.iter().zip(payload.chunks(6)) {
                let Ok(setting) = setting else { continue };
                let (identifier, value) = setting.to_pair();
                let again = [&identifier.to_be_bytes()[..], &value.to_be_bytes()].concat();
                assert_eq!(again, octets);
            }
        }
        Frame::WindowUpdate(update) => assert!((1..=i32::MAX as u32).contains(&update.increment)),
        Frame::Ping(ping) => assert_eq!(ping.opaque, payload),
        Frame::GoAway(go_away) => assert_eq!(go_away.debug, &payload[8..]),
        Frame::PriorityUpdate(update) => assert_eq!(update.value, &payload[4..]),
        Frame::Reset(reset) => assert_eq!(reset.code.0.to_be_bytes(), payload),
        Frame::Priority(fields) => assert_eq!(Some(fields.stream), header.stream),
        Frame::PushPromise | Frame::Unknown => {}
    }
}

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Some((octets, after)) = rest.split_first_chunk::<FRAME_HEADER_LENGTH>() {
        let header = FrameHeader::parse(octets);
        let mut again = *octets;
        again[5] &= 0x7f;
        assert_eq!(header.to_octets(), again);
        // A length that no octets stand behind is cut, so that every payload gets its turn.
        let (payload, after) = after.split_at(after.len().min(header.length as usize));
        check(header, payload);
        rest = after;
    }
});
