import js from '@eslint/js'
import svelte from 'eslint-plugin-svelte'
import { defineConfig } from 'eslint/config'
import globals from 'globals'
import ts from 'typescript-eslint'
import svelteConfig from './svelte.config.js'

export default defineConfig(
  { ignores: ['src/generated/'] },
  js.configs.recommended,
  ts.configs.recommended,
  svelte.configs.recommended,
  // Prettier formats: rules about the layout of the markup would only contradict it.
  svelte.configs.prettier,
  { languageOptions: { globals: globals.browser } },
  {
    files: ['**/*.svelte', '**/*.svelte.ts'],
    languageOptions: { parserOptions: { parser: ts.parser, extraFileExtensions: ['.svelte'], svelteConfig } },
  },
  {
    files: ['src/worker/service-worker.js', 'src/worker/offline.js'],
    languageOptions: { globals: globals.serviceworker },
  },
)
