//! One letter for each state, in keys and records of stores that have no columns.

use onceward::State;

const STATES: [(State, u8); 6] = [
    (State::Waiting, b'w'),
    (State::Held, b'h'),
    (State::Done, b'd'),
    (State::Unknown, b'u'),
    (State::Dead, b'x'),
    (State::Gone, b'g'),
];

/// The letter of a state.
pub(crate) fn letter(state: State) -> u8 {
    STATES.iter().find(|(named, _)| *named == state).expect("every state has a letter").1
}

/// The state of a letter.
pub(crate) fn state(letter: u8) -> Option<State> {
    STATES.iter().find(|(_, named)| *named == letter).map(|(state, _)| *state)
}
