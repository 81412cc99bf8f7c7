//! Tests of Priority field values, one a sentence of RFC 9218.

use super::*;
use proptest::prelude::*;

#[track_caller]
fn parses(field_value: &str, urgency: u8, incremental: bool) {
    let priority = Priority::parse(field_value.as_bytes());
    assert_eq!(
        (priority.urgency(), priority.incremental()),
        (urgency, incremental),
        "{field_value:?}"
    );
}

#[test]
fn an_absent_parameter_has_its_default() {
    parses("", 3, false);
    parses("  ", 3, false);
    parses("u=5", 5, false);
    parses("i", 3, true);
}

#[test]
fn both_parameters_may_be_said_in_any_order_and_spacing() {
    parses("u=2, i", 2, true);
    parses("i,u=2", 2, true);
    parses(" u=0 \t,\t i=?1  ", 0, true);
    parses("u=7, i=?0", 7, false);
    // RFC 9651 section 4.2.2: optional whitespace after a member ends the dictionary.
    parses("u=1\t", 1, false);
}

#[test]
fn unknown_members_and_parameters_are_ignored() {
    parses(
        "u=1;x=y, foo, bar=(1 \"b\" c;d=1.5);e, *k=:YQ==:, i;z, t=A/b:c, s=\"a\\\"b\\\\\"",
        1,
        true,
    );
    parses("n=-17, d=1.25, l=()", 3, false);
}

#[test]
fn an_urgency_out_of_range_or_of_another_type_is_ignored() {
    for field_value in [
        "u=8, i",
        "u=-1, i",
        "u=2.0, i",
        "u=\"2\", i",
        "u=?1, i",
        "u, i",
        "u=(2), i",
        "u=t, i",
    ] {
        parses(field_value, 3, true);
    }
    parses("u=999999999999999, i", 3, true);
}

#[test]
fn an_incremental_that_is_no_boolean_is_ignored() {
    for field_value in ["u=1, i=1", "u=1, i=\"?1\"", "u=1, i=true", "u=1, i=(?1)"] {
        parses(field_value, 1, false);
    }
}

#[test]
fn spaces_may_stand_before_a_parameter_and_nothing_else_may() {
    parses("u=1; a=2, i", 1, true);
    parses("u=1;a;   b=\"c\"; d, i", 1, true);
    parses("u=1, a=(1; b  2;  c=?0); d, i", 1, true);
    for field_value in [
        "u=1;\ta=2, i",
        "u=1; , i",
        "u=1 ;a=2, i",
        "u=1; a =2, i",
        "u=1; a= 2, i",
    ] {
        parses(field_value, 3, false);
    }
}

#[test]
fn the_last_of_repeated_keys_counts() {
    parses("u=1, u=2", 2, false);
    parses("i, i=?0", 3, false);
    parses("u=1, u=9", 3, false);
}

#[test]
fn a_response_changes_what_it_names_and_nothing_that_is_invalid() {
    let asked = Priority::new(5, true).unwrap();
    for (field_value, urgency, incremental) in [
        ("", 5, true),
        ("u=1", 1, true),
        ("i=?0", 5, false),
        ("u=0, i=?0, x", 0, false),
        ("u=9", 5, true),
        ("u=1, u=\"2\"", 5, true),
        ("u=1, i=0", 1, true),
        ("u=1,,", 5, true),
    ] {
        let priority = asked.changed_by(field_value.as_bytes());
        assert_eq!(
            Priority::new(urgency, incremental),
            Some(priority),
            "{field_value:?}"
        );
    }
}

#[test]
fn what_is_no_dictionary_is_all_defaults() {
    for field_value in [
        "u=1, i,",
        "u=1,, i",
        "u=1 i",
        "u =1",
        "u= 1",
        "U=1",
        "u=1, =2",
        "u=1, a=?2",
        "u=1, a=\"b",
        "u=1, a=\"\\n\"",
        "u=1, a=\"\u{e9}\"",
        "u=1, a=(1",
        "u=1, a=(1,2)",
        "u=1, a=:b",
        "u=1, a=1.",
        "u=1, a=1.2345",
        "u=1, a=-",
        "u=1, a=1234567890123456",
        "u=1, a=1234567890123.1",
        "u=1;=2",
        ",u=1",
    ] {
        parses(field_value, 3, false);
    }
}

#[test]
fn each_priority_survives_a_round_trip() {
    for urgency in 0..=7 {
        for incremental in [false, true] {
            let priority = Priority::new(urgency, incremental).unwrap();
            assert_eq!(Priority::parse(priority.to_field_value().as_bytes()), priority);
        }
    }
    assert_eq!(Priority::new(8, true), None);
    assert_eq!(Priority::default().to_field_value(), "u=3");
}

proptest! {
    #[test]
    fn any_octets_give_a_priority_in_range(octets in proptest::collection::vec(any::<u8>(), 0..60)) {
        prop_assert!(Priority::parse(&octets).urgency() <= 7);
    }

    #[test]
    fn anything_like_a_dictionary_gives_a_priority_in_range(text in "[ui=?0-9,; ()\":.*\\-\\\\]{0,40}") {
        prop_assert!(Priority::parse(text.as_bytes()).urgency() <= 7);
    }
}
