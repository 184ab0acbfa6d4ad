//! The code of the manual's page on tests runs as it is printed there.

mod testing;

#[test]
fn the_page_on_tests_shows_what_is_tested() {
    let page = include_str!("../../../../docs/testing.md");
    let shown: Vec<_> =
        page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let (_, tested) = include_str!("manual/testing.rs").split_once("\n\n").unwrap();
    assert_eq!(shown.join("\n"), tested, "docs/testing.md and tests/it/manual/testing.rs differ");
}
