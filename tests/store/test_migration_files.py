"""The migrations: one file for both databases; an applied one never changes."""

from pathlib import Path

import pytest

from sessionary.store import migrations

# What is recorded in stores that exist. Add the checksum of a new migration; never change one.
APPLIED = {
    "sqlite": {
        "0001_spine": "9e293f1df8eb577979f94b9d24757eb96ed9cb7bfc340d0c621cae9daa9c357e",
        "0002_engine": "bca15efdb8d349ff97a6050c80ba55b924e86f140989276bff4e3034c1896058",
        "0003_web": "f41951eba45eae821094ce8f38724315024b568d3fcb2c6a55c2261624d2ec42",
        "0004_imports": "25e12396aafa1f55eb4b014ed387a793baee1242b86729544d49edf7a1fcf261",
        "0005_uploads": "1e9ae45c03af50d25b834a3672b078bf3198255dcdc8dac45c68fa5faf1dd4ec",
        "0006_upkeep": "9ac2c09418db2451e92d0643272d078363f747ef5bbbff187b882e3e31b5e8b6",
        "0007_checks": "cffe2a90db4a32bf70629b88aafea5ff5d7729aade845d2cf5a0d21ff7a9d0e6",
        "0008_orders": "18b7cdd4e152b0be2b00872c057aea40b9bc6a7ad41a09d847a76a56667e0265",
        "0009_due": "9121c638c2fd63e7346a05b7091db425ee4ac10dd79e9e56fb0222445848b7f6",
        "0010_numbers": "30baf89e5468230c60bfaf4f36debc0c40c31479b5ea8d848073eb9470208c35",
        "0011_reservations": "d919c411f3884904d06a0995330f9db237bd60d3cb491d8c3b788fd6d4014771",
        "0012_abandoned": "6a56fcf29e5e727b70acddd23b1eef3412244c45a71e62678f56dc1fc92e9316",
        "0013_models": "65c7d12e91deaa0165fefabd1613e83e8be0415fd88b1a3799c2d94d0d258138",
        "0018_folder": "1e0630861220e80b1e370db8680ca00fdd2f5b9583077c609a903495dbe097c1",
        "0019_deliveries": "7ea0cd9cd5304971d8593058b26bfd06a7aa9d0183f945b16a59d2bb8824bcbd",
        "0020_redaction_salt": "d9a649207953acd25bc8de766504cbd8e882399e99923c0b61c96b05ddfd7421",
        "0023_turns_go_on": "e3dea0b35cf0151079499cb483ce32b82bd5357a122e98f39c654aacbf37d1cf",
        "0024_budget_warnings": "e381de8290976603edb9e9d0d26d0e2b39f3af5f5928446d6da0da994bfac4ea",
        "0025_next_sessions": "775521496450b31864f9756280c700415a8eb7a535cadfe65c063f358bd8983b",
        "0026_retractions": "61dd77f2163c5efff17e3bef12324319e4af4850fc395b252a14b18d3e072d7c",
        "0027_questions": "3ec1ea82c286f5dd68b642359c9c85b4f7fb81b5171ab15ccd0458ee52b97443",
        "0028_question_codes": "d007e05c2e23ee6d8935ddd2fed660feaae1a08d5104870704d821ad7f92e8a8",
        "0029_push_subscriptions": "bbedbd8e957dd5794c6f52e82f5636015d6a70ed2dada5c08c854adb0ca3490a",
        "0030_conversation_prefixes": "f4a419046f422c3a5c3d2b292ebe834862b5960bbb69dc01d866d1f5c41bf5bf",
        "0031_files": "d70dbbc8821d5059548531510865641391f580123d426a395de573cf4b528dbc",
        "0032_proxy_exchanges": "9396203cb262abe1d6ff9a523c0dcc9833cd9f21ebf38331a70e80ee0808860a",
        "0033_graphs": "65524902b0b8ad377e3e26920bfb5cfd7e7353ec784eb51c303905f7a3faa374",
    },
    "postgres": {
        "0001_spine": "d227d7d246153e9e55752bb7f491ea55ffd382705e915a8e1686ca88b2e0d0df",
        "0002_search": "b14e81521b3116324a6da930fabbcc06f53f9ae74c83250c9f0034bb7da78239",
        "0003_engine": "70988d9b1201d5b3d791b4d67d67df4efffe35ea49030b7c5ab2923c0e1ad899",
        "0004_web": "8073a2342d5766452dd367eb04f3c6715350954375538d35ff4aa3c5bda0f3b0",
        "0005_imports": "ae59a2a8a1eb88765d7500c167a8f29ae5f6b291d4904ac67b60a5f2533f8ae4",
        "0006_uploads": "d280acb3b75ee15916ec1b8935602f9de45f74e5c678c5fa0c9f0ef6c53c2df1",
        "0007_upkeep": "fc4be5ce630e2ad3e0e5304f06058342614b63ad1576fd40366b408b8ba2fa86",
        "0008_orders": "30f9b455f40088c09a75c8ae3eb21a60ba4786077ec662b637cb7cb00d22cd9f",
        "0009_words": "63fb5c58946c1d04863331bf96fad65dd2b19d973cac46bd627a11f368268fdf",
        "0010_checks": "3862e03cd391e8d97272c24c8ec655687f48a255db542d5d9a2bc550ab08467d",
        "0011_due": "9121c638c2fd63e7346a05b7091db425ee4ac10dd79e9e56fb0222445848b7f6",
        "0012_numbers": "30baf89e5468230c60bfaf4f36debc0c40c31479b5ea8d848073eb9470208c35",
        "0013_reindex": "e4614277813e8054d73cdeee80c8ac5a0f3a516e4b75dc0c5bd2d7393293e096",
        "0014_reservations": "f3c158bd22a42eba24823e19ca290b3205ae1846561c5a7ea86b60e3f0f8fdaf",
        "0015_abandoned": "6a56fcf29e5e727b70acddd23b1eef3412244c45a71e62678f56dc1fc92e9316",
        "0016_models": "65c7d12e91deaa0165fefabd1613e83e8be0415fd88b1a3799c2d94d0d258138",
        "0017_search_vector": "c1d052df6fd883db59777de341f5d310e2716ff7963391a909a5acfbdc2ea583",
        "0018_folder": "55c15e1056d6b5f1f741578a6fd0ff28c6faac91e5f82e8e4ff22318b6c4d2d3",
        "0019_deliveries": "7ea0cd9cd5304971d8593058b26bfd06a7aa9d0183f945b16a59d2bb8824bcbd",
        "0020_redaction_salt": "e78fda04cf89c25f05ff8e92deaae17c54cf99af4ad61c32073614ea7d890e5b",
        "0021_bulk_index": "0e8265c5d92f210f5757877f29748494caa20958c5f1b44df69ff524c7131314",
        "0022_search_blocks": "4c9f3a9e938ba645eec46ef48874e42790f0f7e35b6af29948cc12c933ad1f00",
        "0023_turns_go_on": "78fae6ffb8e7bd870782306d4fea9b64f7ca7df881a42ad463f11bfaeadbceeb",
        "0024_budget_warnings": "6c1d55b8324942e0d5810f6cb9d1324550ea5cae4e516dcf2c201746964b235b",
        "0025_next_sessions": "e73f0fba5676bbcbb483106b82ae33b7bafb16606cc29c6dff1cddec32392789",
        "0026_retractions": "61dd77f2163c5efff17e3bef12324319e4af4850fc395b252a14b18d3e072d7c",
        "0027_questions": "d7a9bbb7793a1661dec0c0fc197d42ac44ab18562bc31ab2b0f5bb8f6ef95251",
        "0028_question_codes": "73619918935ae5c5b3f88137b309b31ebf1cf95b7e5663a41ab6a8a65f5a51b9",
        "0029_push_subscriptions": "b908f57cef636a7abf98419e04a41c45ccc8129774d104b033c8ec57758243dd",
        "0030_conversation_prefixes": "76f3c700756855165551223972ed22b3ee5f7866aaa823dd6fa041240a3b8f42",
        "0031_files": "6963550a84bc23e27a50280bc1c1b3131f86371590de3d39ed91fba42fd81a45",
        "0032_proxy_exchanges": "d962d30a9fa142c725cf23a58e588bcc8e84d0468ee204d8c4c450d688751963",
        "0033_graphs": "b4ab7fc5a646e6106f93ec98bb3de63605e1b3992fd0798e17a9071e8a0931fa",
    },
}


def test_the_numbers_of_files_follow_each_other() -> None:
    """Two branches cannot add the same number."""
    numbers = sorted(int(file.name.partition("_")[0]) for file in migrations.FOLDER.iterdir())

    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_an_applied_migration_is_not_changed(dialect: str) -> None:
    assert {step.name: step.checksum for step in migrations.known(dialect)} == APPLIED[dialect]


def test_a_migration_has_parts_for_one_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0002_both.sql").write_text(
        "--@ sqlite name 0001_own\nCREATE TABLE a (\n    no BIGINT NOT NULL\n"
        "--@ sqlite\n) WITHOUT ROWID;\n--@ postgres\n);\n--@ both\n-- the end\n"
    )
    (tmp_path / "0003_one.sql").write_text("--@ postgres\nTRUNCATE a;\n")
    monkeypatch.setattr(migrations, "FOLDER", tmp_path)

    here = migrations.known.__wrapped__("sqlite")
    there = migrations.known.__wrapped__("postgres")

    assert [(step.name, step.text) for step in here] == [
        ("0001_own", "CREATE TABLE a (\n    no INTEGER NOT NULL\n) WITHOUT ROWID;\n-- the end\n")
    ]
    assert [(step.name, step.text) for step in there] == [
        ("0002_both", "CREATE TABLE a (\n    no BIGINT NOT NULL\n);\n-- the end\n"),
        ("0003_one", "TRUNCATE a;\n"),
    ]
