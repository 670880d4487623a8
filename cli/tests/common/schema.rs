//! JSON against the schemas in docs.

use serde_json::Value;
use std::fs;
use std::path::Path;

/// Fails unless the value is as its own schema, the one that it names, says.
#[track_caller]
pub(crate) fn valid(value: &Value) {
    let name = value["schema"].as_str().unwrap_or_else(|| panic!("no schema: {value:#}"));
    let file = format!("../docs/schemas/{}.json", name.replace('/', "-"));
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let validator = jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path)).collect();
    assert!(errors.is_empty(), "{errors:?}\n{value:#}");
}
