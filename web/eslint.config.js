import js from '@eslint/js'
import svelte from 'eslint-plugin-svelte'
import { defineConfig } from 'eslint/config'
import globals from 'globals'
import ts from 'typescript-eslint'
import svelteConfig from './svelte.config.js'

export default defineConfig(
  { ignores: ['src/generated/', 'src/lib/api/schema.d.ts'] },
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },
  js.configs.recommended,
  ts.configs.recommended,
  svelte.configs.recommended,
  // Prettier owns the layout; the layout rules of the Svelte plugin would contradict it.
  svelte.configs.prettier,
  { languageOptions: { globals: globals.browser } },
  {
    files: ['**/*.svelte', '**/*.svelte.ts'],
    languageOptions: {
      parserOptions: {
        parser: ts.parser,
        extraFileExtensions: ['.svelte'],
        // The cache cannot store the function in the other options.
        svelteConfig: { compilerOptions: { runes: svelteConfig.compilerOptions.runes } },
      },
    },
    rules: {
      // svelte-check reports undefined names, and unlike this rule it knows the types of the DOM.
      'no-undef': 'off',
      // Collections in state are replaced, never mutated ($state.raw). The rule also reports sets that live for one call.
      'svelte/prefer-svelte-reactivity': 'off',
    },
  },
  { files: ['src/worker/service-worker.js'], languageOptions: { globals: globals.serviceworker } },
)
