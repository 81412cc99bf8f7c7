//! Extensions of HTTP/2.

use bytes::Bytes;

#[cfg(feature = "unstable")]
pub use h2_upstream::ext::Protocol;

#[cfg(not(feature = "unstable"))]
pub use self::own::Protocol;

pub(crate) fn from_engine(protocol: &fullbore_proto::Protocol) -> Protocol {
    Protocol::from(protocol.as_str())
}

/// None if the name is no token, and cannot be sent.
pub(crate) fn to_engine(protocol: &Protocol) -> Option<fullbore_proto::Protocol> {
    fullbore_proto::Protocol::try_from(Bytes::copy_from_slice(protocol.as_ref())).ok()
}

#[cfg(not(feature = "unstable"))]
mod own {
    use std::fmt;

    /// The `:protocol` of an extended CONNECT request (RFC 8441), in the request's extensions.
    ///
    /// ```
    /// use h2::ext::Protocol;
    ///
    /// let request = http::Request::connect("https://example.com/chat")
    ///     .extension(Protocol::from_static("websocket"))
    ///     .body(())
    ///     .unwrap();
    /// let protocol = request.extensions().get::<Protocol>().unwrap();
    /// assert_eq!(protocol.as_str(), "websocket");
    /// ```
    #[derive(Clone, Eq, PartialEq)]
    pub struct Protocol {
        value: Value,
    }

    /// A string that is static or shared.
    #[derive(Clone)]
    enum Value {
        Static(&'static str),
        Shared(std::sync::Arc<str>),
    }

    impl Protocol {
        /// A protocol whose name is static.
        pub const fn from_static(value: &'static str) -> Self {
            let value = Value::Static(value);
            Protocol { value }
        }

        /// The name, as it stands in `:protocol`.
        pub fn as_str(&self) -> &str {
            self.value.as_str()
        }
    }

    impl Value {
        fn as_str(&self) -> &str {
            match self {
                Value::Static(value) => value,
                Value::Shared(value) => value,
            }
        }
    }

    impl PartialEq for Value {
        fn eq(&self, other: &Self) -> bool {
            self.as_str() == other.as_str()
        }
    }

    impl Eq for Value {}

    impl<'a> From<&'a str> for Protocol {
        fn from(value: &'a str) -> Self {
            let value = Value::Shared(value.into());
            Protocol { value }
        }
    }

    impl AsRef<[u8]> for Protocol {
        fn as_ref(&self) -> &[u8] {
            self.as_str().as_bytes()
        }
    }

    impl fmt::Debug for Protocol {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.as_str().fmt(f)
        }
    }
}
