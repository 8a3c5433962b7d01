"""Sessions in and out of the store: export, import, merge of other tools' sessions, handover."""
