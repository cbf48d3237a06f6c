//! Words of JavaScript for settings and hints of library messages.

use diskwright::hint::{Dialect, Hint, provide};

/// Makes messages name options of this module.
pub(crate) fn speak_javascript() {
    provide(Dialect { setting: |setting, _| Some(setting.name().to_owned()), hint });
}

fn hint(hint: Hint) -> Option<String> {
    let text = match hint {
        Hint::ChooseListed => "choose one of them",
        Hint::ChoosePartition => "choose a partition",
        Hint::ChoosePart => "choose its partition or offset",
        Hint::PartOrDamaged => {
            "if the file system is inside a disk image, choose its partition or offset"
        }
        Hint::CheckOrSalvage => "check it for the damage",
        Hint::SearchCopies => "a check searches for superblock copies",
        _ => return None,
    };
    Some(text.to_owned())
}
