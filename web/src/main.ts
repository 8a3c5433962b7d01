import { mount } from 'svelte'
import App from './App.svelte'
import './app.css'
import { useLanguage } from './lib/i18n.svelte'
import { list } from './lib/list.svelte'
import { live } from './lib/live.svelte'
import { router } from './lib/router.svelte'

const target = document.getElementById('app')
if (!target) throw new Error('The page has no place for the workbench.')
router.start()
live.start()
list.start()
void useLanguage().then(() => mount(App, { target }))
