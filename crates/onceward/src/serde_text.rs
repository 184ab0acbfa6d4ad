//! States and attempts as text in serialised data, behind the feature `serde`: as they are printed and parsed.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::receipt::{Attempt, Fence};
use crate::store::State;

macro_rules! as_text {
    ($($kind:ty, $expected:literal;)+) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $kind;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$kind, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                from.deserialize_str(Text)
            }
        }
    )+};
}

as_text! {
    State, "the name of a state";
    Attempt, "32 hexadecimal digits";
}

impl Serialize for Fence {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Fence {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        u64::deserialize(from).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_written_as_they_are_printed() {
        for state in State::ALL {
            let text = serde_json::to_string(&state).unwrap();
            assert_eq!(text, format!("\"{state}\""));
            assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
        }
        let attempt = Attempt(0x2a);
        let text = serde_json::to_string(&attempt).unwrap();
        assert_eq!(text, "\"0000000000000000000000000000002a\"");
        assert_eq!(serde_json::from_str::<Attempt>(&text).unwrap(), attempt);
        assert_eq!(
            serde_json::from_str::<Fence>(&serde_json::to_string(&Fence(7)).unwrap()).unwrap(),
            Fence(7)
        );
    }

    #[test]
    fn other_text_is_an_error() {
        assert!(
            serde_json::from_str::<State>("\"finished\"").unwrap_err().to_string().contains("not a state")
        );
        assert!(serde_json::from_str::<Attempt>("\"2a\"").is_err());
        assert!(serde_json::from_str::<State>("7").is_err());
    }
}
