//! Structured fields (RFC 8941), as far as a Priority field needs them: a dictionary is walked in full, so that one
//! that is broken is told from one that has unknown members, and of its values only numbers and booleans are kept.

/// The field value is no dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotADictionary;

type Parsed<T> = Result<T, NotADictionary>;

/// The value of a member, its parameters left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BareItem {
    Integer(i64),
    Boolean(bool),
    /// Any other item, or an inner list.
    Other,
}

/// Walks the members of a dictionary (RFC 8941 section 4.2.2) in order; ends after the first error.
pub(super) struct Dictionary<'a> {
    input: Input<'a>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    AfterMember,
    Done,
}

impl<'a> Dictionary<'a> {
    pub(super) fn new(field_value: &'a [u8]) -> Self {
        let mut input = Input(field_value);
        input.skip(b" ");
        Self {
            input,
            state: State::Start,
        }
    }

    /// The next member, or `None` at the end.
    fn member(&mut self) -> Parsed<Option<(&'a [u8], BareItem)>> {
        if self.state == State::AfterMember {
            // A space may end the field, a tab may not.
            let mut rest = self.input;
            rest.skip(b" ");
            if rest.0.is_empty() {
                return Ok(None);
            }
            self.input.skip(b" \t");
            self.input.expect(b',')?;
            self.input.skip(b" \t");
        } else if self.input.0.is_empty() {
            return Ok(None);
        }
        let key = self.input.key()?;
        let value = if self.input.eat(b'=') {
            self.input.member_value()?
        } else {
            BareItem::Boolean(true)
        };
        self.input.parameters()?;
        Ok(Some((key, value)))
    }
}

impl<'a> Iterator for Dictionary<'a> {
    type Item = Parsed<(&'a [u8], BareItem)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Done {
            return None;
        }
        let member = self.member().transpose();
        self.state = match member {
            Some(Ok(_)) => State::AfterMember,
            _ => State::Done,
        };
        member
    }
}

/// What is left to parse.
#[derive(Clone, Copy)]
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn eat(&mut self, octet: u8) -> bool {
        let found = self.peek() == Some(octet);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, octet: u8) -> Parsed<()> {
        if self.eat(octet) {
            Ok(())
        } else {
            Err(NotADictionary)
        }
    }

    fn skip(&mut self, octets: &[u8]) {
        self.take_while(|octet| octets.contains(&octet));
    }

    fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a [u8] {
        let length = self
            .0
            .iter()
            .position(|&octet| !belongs(octet))
            .unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    /// RFC 8941 section 4.2.3.3.
    fn key(&mut self) -> Parsed<&'a [u8]> {
        match self.peek() {
            Some(b'a'..=b'z' | b'*') => Ok(self
                .take_while(|octet| matches!(octet, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'))),
            _ => Err(NotADictionary),
        }
    }

    /// An item or an inner list, up to its parameters (RFC 8941 section 4.2.1.1).
    fn member_value(&mut self) -> Parsed<BareItem> {
        if self.peek() == Some(b'(') {
            self.inner_list()?;
            return Ok(BareItem::Other);
        }
        self.bare_item()
    }

    /// RFC 8941 section 4.2.1.2.
    fn inner_list(&mut self) -> Parsed<()> {
        self.expect(b'(')?;
        loop {
            self.skip(b" ");
            if self.eat(b')') {
                return Ok(());
            }
            self.bare_item()?;
            self.parameters()?;
            if !matches!(self.peek(), Some(b' ' | b')')) {
                return Err(NotADictionary);
            }
        }
    }

    /// RFC 8941 section 4.2.3.2.
    fn parameters(&mut self) -> Parsed<()> {
        while self.eat(b';') {
            self.skip(b" ");
            self.key()?;
            if self.eat(b'=') {
                self.bare_item()?;
            }
        }
        Ok(())
    }

    /// RFC 8941 section 4.2.3.1.
    fn bare_item(&mut self) -> Parsed<BareItem> {
        match self.peek().ok_or(NotADictionary)? {
            b'-' | b'0'..=b'9' => self.number(),
            b'?' => self.boolean().map(BareItem::Boolean),
            b'"' => self.string().map(|()| BareItem::Other),
            b':' => self.byte_sequence().map(|()| BareItem::Other),
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.take_while(is_token_octet);
                Ok(BareItem::Other)
            }
            _ => Err(NotADictionary),
        }
    }

    /// An integer of at most 15 digits, or a decimal of at most 12 and 3 (RFC 8941 section 4.2.4).
    fn number(&mut self) -> Parsed<BareItem> {
        let is_negative = self.eat(b'-');
        let digits = self.take_while(|octet| octet.is_ascii_digit());
        if digits.is_empty() || digits.len() > 15 {
            return Err(NotADictionary);
        }
        if self.eat(b'.') {
            let fraction = self.take_while(|octet| octet.is_ascii_digit());
            return match (digits.len(), fraction.len()) {
                (..=12, 1..=3) => Ok(BareItem::Other),
                _ => Err(NotADictionary),
            };
        }
        let number = digits
            .iter()
            .fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
        Ok(BareItem::Integer(if is_negative { -number } else { number }))
    }

    /// RFC 8941 section 4.2.8.
    fn boolean(&mut self) -> Parsed<bool> {
        self.expect(b'?')?;
        match self.next() {
            Some(b'0') => Ok(false),
            Some(b'1') => Ok(true),
            _ => Err(NotADictionary),
        }
    }

    /// RFC 8941 section 4.2.5.
    fn string(&mut self) -> Parsed<()> {
        self.expect(b'"')?;
        loop {
            match self.next() {
                Some(b'"') => return Ok(()),
                Some(b'\\') if matches!(self.next(), Some(b'"' | b'\\')) => {}
                Some(b'\\') => return Err(NotADictionary),
                Some(b' '..=b'~') => {}
                _ => return Err(NotADictionary),
            }
        }
    }

    /// RFC 8941 section 4.2.7. What the octets decode to is of no interest.
    fn byte_sequence(&mut self) -> Parsed<()> {
        self.expect(b':')?;
        self.take_while(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'+' | b'/' | b'='));
        self.expect(b':')
    }
}

fn is_token_octet(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&octet)
}
