use onceward::Result;

use super::{Machine, MachineBuilder};

fn orders() -> MachineBuilder {
    Machine::builder("orders", "id", "state")
        .with_initial("placed")
        .with_allowed("placed", ["paid", "cancelled"])
        .with_allowed("paid", ["shipped"])
}

#[track_caller]
fn check_refused(builder: MachineBuilder, expected: &str) {
    let error = builder.build().expect_err(expected).to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_declaration_that_makes_no_sense_is_refused_with_its_reason() {
    check_refused(Machine::builder("orders", "id", "state"), "allows no change");
    check_refused(Machine::builder("orders; --", "id", "state").with_allowed("a", ["b"]), "plain name");
    check_refused(orders().with_history("order history"), "plain name");
    check_refused(orders().with_allowed("paid", ["refunded"]), "`paid` is declared twice");
    check_refused(orders().with_allowed("shipped", ["shipped"]), "cannot follow itself");
    check_refused(orders().with_allowed("shipped", ["lost", "lost"]), "`lost` follows `shipped` twice");
    check_refused(orders().with_allowed("draft", ["placed"]), "`draft` cannot be reached from `placed`");
    check_refused(orders().with_allowed("shipped", [""]), "not the name of a state");
    check_refused(orders().with_allowed("shipped", ["\u{1}"]), "not the name of a state");
    check_refused(orders().with_allowed("shipped", ["x".repeat(65).as_str()]), "not the name of a state");
    check_refused(orders().with_effect("lost", |_, _| Box::pin(async { Ok(()) })), "names `lost`");
}

#[test]
fn a_machine_knows_its_states_and_draws_itself() -> Result<()> {
    let machine = orders().build()?;
    assert_eq!(machine.states(), ["cancelled", "paid", "placed", "shipped"]);
    assert_eq!(machine.allowed("placed"), ["paid", "cancelled"]);
    assert!(machine.allowed("shipped").is_empty() && machine.allowed("unheard of").is_empty());
    let drawn = "\
stateDiagram-v2
    s1 : cancelled
    s2 : paid
    s3 : placed
    s4 : shipped
    [*] --> s3
    s2 --> s4
    s3 --> s2
    s3 --> s1
    s1 --> [*]
    s4 --> [*]
";
    assert_eq!(machine.mermaid(), drawn);
    Ok(())
}

#[test]
fn the_svg_has_every_state_and_every_change_and_escapes_names() -> Result<()> {
    let machine = Machine::builder("orders", "id", "state")
        .with_allowed("new", ["a<b", "done"])
        .with_allowed("a<b", ["new", "done"])
        .build()?;
    let svg = machine.svg();
    assert_eq!(svg.matches("class=\"arrow\"").count(), 4);
    // The final one has a double border.
    assert_eq!(svg.matches("class=\"state\"").count(), 4);
    assert!(svg.contains(">a&lt;b</text>") && !svg.contains("a<b"), "{svg}");
    assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    // The same machine is drawn the same: drawings can be kept in a repository.
    assert_eq!(svg, machine.svg());
    // Without an initial state, islands and circles are drawn too.
    let circle =
        Machine::builder("t", "id", "s").with_allowed("x", ["y"]).with_allowed("y", ["x"]).build()?;
    assert_eq!(circle.svg().matches("class=\"arrow\"").count(), 2);
    Ok(())
}

#[cfg(feature = "toml")]
#[test]
fn a_declaration_in_a_file_is_the_same_machine() {
    let declared = r#"
        table = "orders"
        key = "id"
        state = "state"
        initial = "placed"
        [allowed]
        placed = ["paid", "cancelled"]
        paid = ["shipped"]
    "#;
    let of = |text: &str| Machine::builder_from_toml(text).and_then(MachineBuilder::build);
    assert_eq!(of(declared).unwrap().mermaid(), orders().build().unwrap().mermaid());
    for (text, expected) in [
        ("table = 1", "not a declaration"),
        ("table = \"t\"\nkey = \"id\"\nstate = \"s\"", "allows no change"),
        ("table = \"t\"\nkey = \"id\"\nstate = \"s\"\nalowed = {}", "unknown field `alowed`"),
    ] {
        let error = of(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
