//! Templates as models have them, and templates that do harm.

use super::*;

fn said(role: &str, content: &str) -> Message {
    Message::new(role, content)
}

fn rendered(text: &str, messages: &[Message]) -> Result<String> {
    Template::new(text.into(), "<s>".into(), "</s>".into())?.render(messages)
}

#[test]
fn templates_of_models_are_rendered_as_transformers_does() {
    let messages = [
        said("system", "Be brief."),
        said("user", " Hi "),
        said("assistant", "Yes?"),
    ];
    let chatml = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + \
        message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}\
        {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
    let wanted = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n\
        <|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(rendered(chatml, &messages).expect("it renders"), wanted);
    let trimmed = "{{ bos_token }}{%- for m in messages if m.role != 'system' %}\n    \
        {{- '[' ~ m.role | upper ~ '] ' ~ m.content.strip() ~ eos_token }}\n{%- endfor %}";
    let wanted = "<s>[USER] Hi</s>[ASSISTANT] Yes?</s>";
    assert_eq!(rendered(trimmed, &messages).expect("it renders"), wanted);
    assert_eq!(
        rendered(PLAIN, &messages[1..2]).expect("it renders"),
        "<s> Hi \n"
    );
}

#[test]
fn a_template_that_refuses_fails_or_loops_is_an_error() {
    for (text, told) in [
        (
            "{{ raise_exception('Roles must alternate') }}",
            "Roles must alternate",
        ),
        ("{{ messages[0].content.nothing() }}", "nothing"),
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}",
            "fuel",
        ),
        ("{% for a in messages %}", "end of input"),
    ] {
        let error = rendered(text, &[said("user", "Hi")])
            .expect_err(text)
            .to_string();
        assert!(error.contains(told), "{error}");
    }
}
